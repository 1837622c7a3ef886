// NVIDIA's run-time compiler by the C compiler of this machine: its code is the name of a library, which the driver in
// main memory loads.

#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct Program { char *source; char code[4096]; };

int nvrtcVersion(int *major, int *minor) { return *major = 12, *minor = 4, 0; }
int nvrtcGetNumSupportedArchs(int *count) { return *count = 2, 0; }
int nvrtcGetSupportedArchs(int *known) { return known[0] = 80, known[1] = 90, 0; }
int nvrtcCreateProgram(struct Program **made, const char *source, const char *name, int headers, const char *const *texts,
                       const char *const *names) {
    (void)name, (void)texts, (void)names;
    if (headers) return 3;
    *made = calloc(1, sizeof **made);
    (*made)->source = strdup(source);
    return 0;
}
int nvrtcCompileProgram(struct Program *program, int count, const char *const *options) {
    int known = 0;
    for (int i = 0; i < count; i++) known |= !strcmp(options[i], "--gpu-architecture=sm_90");
    if (!known) return 5;
    const char *folder = getenv("EDGECUT_CODE"), *compiler = getenv("CC");
    char source[1024], command[4096];
    snprintf(source, sizeof source, "%s/%p-%d.c", folder ? folder : "/tmp", (void *)program, rand());
    snprintf(program->code, sizeof program->code, "edgecut-code:%s.so", source);
    FILE *file = fopen(source, "w");
    if (!file) return 11;
    fputs(program->source, file);
    fclose(file);
    snprintf(command, sizeof command, "%s -std=gnu11 -O2 -ffp-contract=off -shared -fPIC -o %s.so %s -lm",
             compiler ? compiler : "cc", source, source);
    return system(command) ? 6 : 0;
}
int nvrtcGetProgramLogSize(struct Program *program, size_t *bytes) { return (void)program, *bytes = 1, 0; }
int nvrtcGetProgramLog(struct Program *program, char *log) { return (void)program, *log = 0; }
int nvrtcGetCUBINSize(struct Program *program, size_t *bytes) { return *bytes = strlen(program->code) + 1, 0; }
int nvrtcGetCUBIN(struct Program *program, char *code) { return strcpy(code, program->code), 0; }
int nvrtcGetPTXSize(struct Program *program, size_t *bytes) { return nvrtcGetCUBINSize(program, bytes); }
int nvrtcGetPTX(struct Program *program, char *code) { return nvrtcGetCUBIN(program, code); }
int nvrtcDestroyProgram(struct Program **program) {
    free((*program)->source);
    free(*program);
    *program = NULL;
    return 0;
}
