/* What tensorrt.so wants of TensorRT's libraries before it can be imported; nothing calls any of it. */
void *createInferBuilder_INTERNAL() { return 0; }
void *createInferRefitter_INTERNAL() { return 0; }
void *createInferRuntime_INTERNAL() { return 0; }
void *createNvOnnxParserRefitter_INTERNAL() { return 0; }
void *createNvOnnxParser_INTERNAL() { return 0; }
void *getBuilderPluginRegistry() { return 0; }
int getNvOnnxParserVersion() { return 0; }
void *getPluginRegistry() { return 0; }
int initLibNvInferPlugins() { return 0; }
