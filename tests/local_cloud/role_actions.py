"""A call of every action that a role of GitHub's workflows may, or must not, do."""

from onboarding import arns, names
from tests.local_cloud.access_roles import cdk_role


def actions(environment, source):
    """A call of each action, by its name: service, method, request."""
    bucket, before = map(names.artifact_bucket, (environment, source))
    place = f"us-east-1:{environment.account}"
    machine = f"arn:aws:states:{place}:stateMachine:{names.build_machine(environment)}"
    execution = f"arn:aws:states:{place}:execution:{names.build_machine(environment)}:one"
    build, stack = f"roundhouse-{environment.name}-build", f"roundhouse-{environment.name}-builds"
    name = f"{environment.name}-search"
    put = {"Bucket": bucket, "Body": b"new"}
    once = {**put, "IfNoneMatch": "*"}
    log = {"logGroupName": f"/aws/codebuild/{build}-cpu", "logStreamName": "one"}
    document = '{"Version": "2012-10-17", "Statement": []}'
    key = f"arn:aws:kms:{place}:alias/roundhouse-{environment.name}"
    scaling, formation = "application-autoscaling", "cloudformation"
    cdk = {
        f"assume cdk's {kind}": ("sts", "assume_role", {"RoleArn": cdk_role(environment, kind), "RoleSessionName": "x"})
        for kind in ("cfn-exec", "deploy", "file-publishing", "image-publishing", "lookup")
    }  # fmt: skip
    return {
        "list stacks": (formation, "list_stacks", {}),
        "read a template": (formation, "get_template", {"StackName": stack}),
        "read a foreign template": (formation, "get_template", {"StackName": "billing"}),
        "unprotect a stack": (formation, "update_termination_protection", {"StackName": stack, "EnableTerminationProtection": False}),
        "create a stack": (formation, "create_stack", {"StackName": stack, "TemplateBody": "{}"}),
        "delete a stack": (formation, "delete_stack", {"StackName": stack}),
        "list engines": ("s3", "list_objects_v2", {"Bucket": bucket, "Prefix": "engines/"}),
        "list sources": ("s3", "list_objects_v2", {"Bucket": bucket, "Prefix": "sources/"}),
        "read an engine": ("s3", "get_object", {"Bucket": bucket, "Key": "engines/key/model.tar.gz"}),
        "read a network": ("s3", "get_object", {"Bucket": bucket, "Key": "networks/key/model.onnx"}),
        "read a source": ("s3", "get_object", {"Bucket": bucket, "Key": "sources/there.zip"}),
        "read a capture": ("s3", "get_object", {"Bucket": bucket, "Key": "captures/one"}),
        "write a source once": ("s3", "put_object", {**once, "Key": "sources/new.zip"}),
        "write a source": ("s3", "put_object", {**put, "Key": "sources/there.zip"}),
        "write an engine once": ("s3", "put_object", {**once, "Key": "engines/new/model.tar.gz"}),
        "write an engine": ("s3", "put_object", {**put, "Key": "engines/key/model.tar.gz"}),
        "write a network once": ("s3", "put_object", {**once, "Key": "networks/new/model.onnx"}),
        "write a network": ("s3", "put_object", {**put, "Key": "networks/key/model.onnx"}),
        "record an engine once": ("s3", "put_object", {**once, "Key": names.engine_record_path("new")}),
        "start to upload an engine": ("s3", "create_multipart_upload", {"Bucket": bucket, "Key": "engines/large/model.tar.gz"}),
        "write a candidate once": ("s3", "put_object", {**once, "Key": "candidates/key/new/model.tar.gz"}),
        "write a candidate": ("s3", "put_object", {**put, "Key": "candidates/key/there/model.tar.gz"}),
        "read a candidate": ("s3", "get_object", {"Bucket": bucket, "Key": "candidates/key/there/model.tar.gz"}),
        "write a timing cache": ("s3", "put_object", {**put, "Key": "timing-caches/one"}),
        "write a job's work": ("s3", "put_object", {**put, "Key": "jobs/one"}),
        "copy an engine": ("s3", "copy_object", {"Bucket": bucket, "Key": "engines/x", "CopySource": f"{bucket}/engines/key/model.tar.gz"}),
        "delete an engine": ("s3", "delete_object", {"Bucket": bucket, "Key": "engines/key/model.tar.gz"}),
        "tag an engine": ("s3", "get_object_tagging", {"Bucket": bucket, "Key": "engines/key/model.tar.gz"}),
        "change the bucket's policy": ("s3", "put_bucket_policy", {"Bucket": bucket, "Policy": document}),
        "list checkpoints": ("s3", "list_objects_v2", {"Bucket": bucket, "Prefix": "checkpoints/"}),
        "read a checkpoint": ("s3", "get_object", {"Bucket": bucket, "Key": "checkpoints/key/config.json"}),
        "write a checkpoint once": ("s3", "put_object", {**once, "Key": "checkpoints/new/config.json"}),
        "write a checkpoint": ("s3", "put_object", {**put, "Key": "checkpoints/key/config.json"}),
        "record a checkpoint once": ("s3", "put_object", {**once, "Key": names.checkpoint_record_path("new")}),
        "delete a checkpoint": ("s3", "delete_object", {"Bucket": bucket, "Key": "checkpoints/key/config.json"}),
        "tag a checkpoint": ("s3", "get_object_tagging", {"Bucket": bucket, "Key": "checkpoints/key/config.json"}),
        "read an adapter": ("s3", "get_object", {"Bucket": bucket, "Key": "adapters/key/config.json"}),
        "write an adapter once": ("s3", "put_object", {**once, "Key": "adapters/new/config.json"}),
        "read the source's checkpoint": ("s3", "get_object", {"Bucket": before, "Key": "checkpoints/key/config.json"}),
        "list the source's checkpoints": ("s3", "list_objects_v2", {"Bucket": before, "Prefix": "checkpoints/"}),
        "write a checkpoint of the source": ("s3", "put_object", {**once, "Bucket": before, "Key": "checkpoints/x"}),
        "sign as the signer": ("kms", "sign", {"KeyId": f"arn:aws:kms:{place}:{arns.signing_key_alias(environment)}", "Message": b"x" * 32, "MessageType": "DIGEST", "SigningAlgorithm": "ECDSA_SHA_256"}),
        "read the source's engine": ("s3", "get_object", {"Bucket": before, "Key": "engines/key/model.tar.gz"}),
        "read the source's network": ("s3", "get_object", {"Bucket": before, "Key": "networks/key/model.onnx"}),
        "read the source's source": ("s3", "get_object", {"Bucket": before, "Key": "sources/there.zip"}),
        "list the source's engines": ("s3", "list_objects_v2", {"Bucket": before, "Prefix": "engines/"}),
        "list the source's sources": ("s3", "list_objects_v2", {"Bucket": before, "Prefix": "sources/"}),
        "write an engine of the source": ("s3", "put_object", {**once, "Bucket": before, "Key": "engines/x"}),
        "decrypt": ("kms", "decrypt", {"KeyId": key, "CiphertextBlob": b"x"}),
        "sign": ("kms", "sign", {"KeyId": key, "Message": b"x", "SigningAlgorithm": "ECDSA_SHA_256"}),
        "describe an endpoint": ("sagemaker", "describe_endpoint", {"EndpointName": name}),
        "describe a model": ("sagemaker", "describe_model", {"ModelName": name}),
        "describe a foreign endpoint": ("sagemaker", "describe_endpoint", {"EndpointName": "billing"}),
        "update an endpoint": ("sagemaker", "update_endpoint", {"EndpointName": name, "EndpointConfigName": name}),
        "stop a job": ("sagemaker", "stop_training_job", {"TrainingJobName": f"roundhouse-{environment.name}--one"}),
        "start a job": ("sagemaker", "create_training_job", {"TrainingJobName": f"roundhouse-{environment.name}--one"}),
        "invoke": ("sagemaker-runtime", "invoke_endpoint", {"EndpointName": name, "Body": b""}),
        "describe scaling": (scaling, "describe_scalable_targets", {"ServiceNamespace": "sagemaker"}),
        "change scaling": (scaling, "deregister_scalable_target", {"ServiceNamespace": "sagemaker", "ResourceId": f"endpoint/{name}/variant/x", "ScalableDimension": "sagemaker:variant:DesiredInstanceCount"}),
        "describe alarms": ("cloudwatch", "describe_alarms", {}),
        "delete an alarm": ("cloudwatch", "delete_alarms", {"AlarmNames": ["x"]}),
        "start the machine": ("stepfunctions", "start_execution", {"stateMachineArn": machine, "input": "{}"}),
        "start another machine": ("stepfunctions", "start_execution", {"stateMachineArn": f"{machine}-2", "input": "{}"}),
        "change the machine": ("stepfunctions", "update_state_machine", {"stateMachineArn": machine, "definition": "{}"}),
        "follow the machine": ("stepfunctions", "describe_execution", {"executionArn": execution}),
        "stop the machine": ("stepfunctions", "stop_execution", {"executionArn": execution}),
        "look at builds": ("codebuild", "batch_get_builds", {"ids": [f"{build}-cpu:one"]}),
        "stop a build": ("codebuild", "stop_build", {"id": f"{build}-cpu:one"}),
        "build images": ("codebuild", "start_build", {"projectName": f"{build}-images"}),
        "build past the machine": ("codebuild", "start_build", {"projectName": f"{build}-cpu"}),
        "read a build's log": ("logs", "get_log_events", log),
        "read another log": ("logs", "get_log_events", {**log, "logGroupName": "/aws/lambda/x"}),
        "look at images": ("ecr", "describe_images", {"repositoryName": f"roundhouse-{environment.name}/triton"}),
        "push an image": ("ecr", "put_image", {"repositoryName": f"roundhouse-{environment.name}/triton", "imageManifest": "{}"}),
        "read a role": ("iam", "get_role", {"RoleName": f"roundhouse-{environment.name}-plan"}),
        "read a foreign role": ("iam", "get_role", {"RoleName": "admin"}),
        "make a role": ("iam", "create_role", {"RoleName": "x", "AssumeRolePolicyDocument": document}),
        "widen its own role": ("iam", "put_role_policy", {"RoleName": f"roundhouse-{environment.name}-plan", "PolicyName": "x", "PolicyDocument": document}),
        "assume the source's gate": ("sts", "assume_role", {"RoleArn": names.pipeline_role_arn(source, "gate"), "RoleSessionName": "x"}),
        "assume the source's deploy": ("sts", "assume_role", {"RoleArn": names.pipeline_role_arn(source, "deploy"), "RoleSessionName": "x"}),
        **cdk,
    }  # fmt: skip
