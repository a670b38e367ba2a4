// A TensorRT plugin with a creator: Rotate moves each row of a matrix `shift` places to the left.
//
// It needs no kernel, only two copies of the CUDA driver, so a C++ compiler makes it.

#include <cuda.h>
#include <dlfcn.h>

#include "NvInfer.h"

using namespace nvinfer1;

namespace
{
char const* const kNAME = "Rotate";
char const* const kVERSION = "1";
PluginField const kSHIFT{"shift", nullptr, PluginFieldType::kINT32, 1};

using Copy = CUresult (*)(CUDA_MEMCPY2D const*, CUstream);

Copy copyFunction()
{
    void* driver = dlopen("libcuda.so.1", RTLD_NOW);
    return driver ? reinterpret_cast<Copy>(dlsym(driver, "cuMemcpy2DAsync_v2")) : nullptr;
}

class Rotate : public IPluginV3, public IPluginV3OneCore, public IPluginV3OneBuild, public IPluginV3OneRuntime
{
public:
    explicit Rotate(int32_t shift) : mShift(shift) {}

    IPluginCapability* getCapabilityInterface(PluginCapabilityType type) noexcept override
    {
        switch (type)
        {
        case PluginCapabilityType::kCORE: return static_cast<IPluginV3OneCore*>(this);
        case PluginCapabilityType::kBUILD: return static_cast<IPluginV3OneBuild*>(this);
        case PluginCapabilityType::kRUNTIME: return static_cast<IPluginV3OneRuntime*>(this);
        }
        return nullptr;
    }
    IPluginV3* clone() noexcept override { return new Rotate(mShift); }

    AsciiChar const* getPluginName() const noexcept override { return kNAME; }
    AsciiChar const* getPluginVersion() const noexcept override { return kVERSION; }
    AsciiChar const* getPluginNamespace() const noexcept override { return ""; }

    int32_t getNbOutputs() const noexcept override { return 1; }
    int32_t configurePlugin(
        DynamicPluginTensorDesc const*, int32_t, DynamicPluginTensorDesc const*, int32_t) noexcept override
    {
        return 0;
    }
    bool supportsFormatCombination(
        int32_t pos, DynamicPluginTensorDesc const* tensors, int32_t, int32_t) noexcept override
    {
        return tensors[pos].desc.type == DataType::kFLOAT && tensors[pos].desc.format == TensorFormat::kLINEAR;
    }
    int32_t getOutputDataTypes(
        DataType* outputs, int32_t, DataType const* inputs, int32_t) const noexcept override
    {
        outputs[0] = inputs[0];
        return 0;
    }
    int32_t getOutputShapes(DimsExprs const* inputs, int32_t, DimsExprs const*, int32_t, DimsExprs* outputs,
        int32_t, IExprBuilder&) noexcept override
    {
        outputs[0] = inputs[0];
        return 0;
    }

    int32_t onShapeChange(PluginTensorDesc const*, int32_t, PluginTensorDesc const*, int32_t) noexcept override
    {
        return 0;
    }
    IPluginV3* attachToContext(IPluginResourceContext*) noexcept override { return clone(); }
    PluginFieldCollection const* getFieldsToSerialize() noexcept override
    {
        mField = {kSHIFT.name, &mShift, PluginFieldType::kINT32, 1};
        mFields = {1, &mField};
        return &mFields;
    }
    int32_t enqueue(PluginTensorDesc const* inputs, PluginTensorDesc const*, void const* const* from,
        void* const* to, void*, cudaStream_t stream) noexcept override
    {
        static Copy const copy = copyFunction();
        size_t const rows = inputs[0].dims.d[0], width = inputs[0].dims.d[1];
        size_t const pitch = width * sizeof(float), head = mShift * sizeof(float);
        auto const source = reinterpret_cast<CUdeviceptr>(from[0]);
        auto const target = reinterpret_cast<CUdeviceptr>(to[0]);
        CUDA_MEMCPY2D part{};
        part.srcMemoryType = part.dstMemoryType = CU_MEMORYTYPE_DEVICE;
        part.srcDevice = source, part.dstDevice = target;
        part.srcPitch = part.dstPitch = pitch;
        part.Height = rows;
        auto const queue = reinterpret_cast<CUstream>(stream);
        part.srcXInBytes = head, part.WidthInBytes = pitch - head;
        if (!copy || copy(&part, queue) != CUDA_SUCCESS)
            return 1;
        part.srcXInBytes = 0, part.dstXInBytes = pitch - head, part.WidthInBytes = head;
        return copy(&part, queue) != CUDA_SUCCESS;
    }

private:
    int32_t mShift;
    PluginField mField{};
    PluginFieldCollection mFields{};
};

class RotateCreator : public IPluginCreatorV3One
{
public:
    AsciiChar const* getPluginName() const noexcept override { return kNAME; }
    AsciiChar const* getPluginVersion() const noexcept override { return kVERSION; }
    AsciiChar const* getPluginNamespace() const noexcept override { return ""; }
    PluginFieldCollection const* getFieldNames() noexcept override
    {
        static PluginFieldCollection const fields{1, &kSHIFT};
        return &fields;
    }
    IPluginV3* createPlugin(
        AsciiChar const*, PluginFieldCollection const* fields, TensorRTPhase) noexcept override
    {
        return fields->nbFields == 1 ? new Rotate(*static_cast<int32_t const*>(fields->fields[0].data)) : nullptr;
    }
};

REGISTER_TENSORRT_PLUGIN(RotateCreator);
} // namespace
