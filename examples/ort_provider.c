/* A model in ONNX Runtime, computed by the agents of a cluster:
 *
 *     cc -I ONNXRUNTIME/include examples/ort_provider.c -L ONNXRUNTIME/lib -lonnxruntime -o ort_provider
 *     ./ort_provider target/release/libedgecut_ort_ep.so model.onnx lab.toml
 *
 * ONNX Runtime 1.23 or later; the model has one float input, without unknown dimensions. */
#include <onnxruntime_c_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const OrtApi *ort;

static void check(OrtStatus *status) {
    if (status == NULL) return;
    fprintf(stderr, "%s\n", ort->GetErrorMessage(status));
    exit(1);
}

int main(int count, char **arguments) {
    if (count != 4) {
        fprintf(stderr, "usage: ort_provider LIBRARY MODEL CLUSTER\n");
        return 2;
    }
    ort = OrtGetApiBase()->GetApi(ORT_API_VERSION);
    OrtEnv *env;
    check(ort->CreateEnv(ORT_LOGGING_LEVEL_WARNING, "example", &env));
    check(ort->RegisterExecutionProviderLibrary(env, "edgecut", arguments[1]));

    const OrtEpDevice *const *devices, *cluster = NULL;
    size_t number;
    check(ort->GetEpDevices(env, &devices, &number));
    for (size_t i = 0; i < number; i++)
        if (strcmp(ort->EpDevice_EpName(devices[i]), "EdgecutExecutionProvider") == 0) cluster = devices[i];
    if (cluster == NULL) {
        fprintf(stderr, "%s has no provider for this ONNX Runtime\n", arguments[1]);
        return 1;
    }
    const char *keys[] = {"cluster", "plan"}, *values[] = {arguments[3], "plan.json"};
    OrtSessionOptions *options;
    check(ort->CreateSessionOptions(&options));
    check(ort->SessionOptionsAppendExecutionProvider_V2(options, env, &cluster, 1, keys, values, 2));
    OrtSession *session;
    check(ort->CreateSession(env, arguments[2], options, &session));

    OrtAllocator *allocator;
    char *input, *output;
    OrtTypeInfo *type;
    const OrtTensorTypeAndShapeInfo *info;
    int64_t shape[8];
    size_t axes, elements;
    check(ort->GetAllocatorWithDefaultOptions(&allocator));
    check(ort->SessionGetInputName(session, 0, allocator, &input));
    check(ort->SessionGetOutputName(session, 0, allocator, &output));
    check(ort->SessionGetInputTypeInfo(session, 0, &type));
    check(ort->CastTypeInfoToTensorInfo(type, &info));
    check(ort->GetDimensionsCount(info, &axes));
    if (axes > 8) return 2;
    check(ort->GetDimensions(info, shape, axes));
    check(ort->GetTensorShapeElementCount(info, &elements));

    OrtValue *image, *result = NULL;
    float *data;
    check(ort->CreateTensorAsOrtValue(allocator, shape, axes, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, &image));
    check(ort->GetTensorMutableData(image, (void **)&data));
    for (size_t i = 0; i < elements; i++) data[i] = (float)i / (float)elements;
    check(ort->Run(session, NULL, (const char *const *)&input, (const OrtValue *const *)&image, 1,
                   (const char *const *)&output, 1, &result));
    check(ort->GetTensorMutableData(result, (void **)&data));
    printf("%s[0] = %g\n", output, data[0]);

    ort->ReleaseSession(session); /* the agents unload the plan */
    check(ort->UnregisterExecutionProviderLibrary(env, "edgecut"));
    ort->ReleaseEnv(env);
    return 0;
}
