// Triton calls these two functions for every model repository: at its start, and for each model that
// SageMaker loads. Preloaded, they run verify_archive.py first, and what it refuses is Triton's own
// error: nothing of the archive was read before. SageMaker's front end answers it with 400.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef PYTHON
#define PYTHON "/usr/bin/python3"
#endif
#ifndef SCRIPT
#define SCRIPT "/opt/roundhouse/container/triton_image/verify_archive.py"
#endif
#define SIGNERS "ROUNDHOUSE_SIGNERS"
#define CHECKED "ROUNDHOUSE_SIGNATURES_CHECKED"
#define INVALID_ARGUMENT 3

typedef void Error;
typedef Error *(*ErrorNew)(int, const char *);
typedef Error *(*RegisterRepository)(void *, const char *, const void **, uint32_t);
typedef Error *(*SetRepositoryPath)(void *, const char *);

static int is_set(const char *name) {
  const char *value = getenv(name);
  return value != NULL && value[0] != '\0';
}

// Archives' own Python reads this: an image without this library refuses what it cannot check.
__attribute__((constructor)) static void announce(void) {
  if (is_set(SIGNERS))
    setenv(CHECKED, "1", 1);
  else
    unsetenv(CHECKED);
}

// The exit status of the script, -1 when it did not run; its output into `sentence`.
static int run(const char *folder, char *sentence, size_t size) {
  char *arguments[] = {PYTHON, "-I", "-S", "-B", SCRIPT, (char *)folder, NULL};
  posix_spawn_file_actions_t actions;
  int ends[2], status = -1;
  size_t length = 0;
  ssize_t count;
  pid_t child;
  if (pipe2(ends, O_CLOEXEC) != 0) return -1;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  int failed = posix_spawn(&child, PYTHON, &actions, NULL, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  while (!failed && length < size - 1) {
    count = read(ends[0], sentence + length, size - 1 - length);
    if (count == 0 || (count < 0 && errno != EINTR)) break;
    if (count > 0) length += count;
  }
  close(ends[0]);
  sentence[length] = '\0';
  while (!failed && waitpid(child, &status, 0) < 0 && errno == EINTR)
    ;
  return !failed && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static Error *refusal(const char *folder) {
  char sentence[4096];
  if (!is_set(SIGNERS)) return NULL;
  int status = run(folder, sentence, sizeof sentence);
  if (status == 0) return NULL;
  if (sentence[0] == '\0')
    snprintf(sentence, sizeof sentence,
             "Refused: the check of the signature of %s ended with status %d; push the images of "
             "this version.", folder, status);
  return ((ErrorNew)dlsym(RTLD_DEFAULT, "TRITONSERVER_ErrorNew"))(INVALID_ARGUMENT, sentence);
}

Error *TRITONSERVER_ServerRegisterModelRepository(void *server, const char *folder,
                                                  const void **mapping, const uint32_t count) {
  Error *error = refusal(folder);
  if (error != NULL) return error;
  return ((RegisterRepository)dlsym(RTLD_NEXT, __func__))(server, folder, mapping, count);
}

// Of several models this is a folder that `serve` made, without an archive.
Error *TRITONSERVER_ServerOptionsSetModelRepositoryPath(void *options, const char *folder) {
  const char *several = getenv("SAGEMAKER_MULTI_MODEL");
  Error *error = several != NULL && strcmp(several, "true") == 0 ? NULL : refusal(folder);
  if (error != NULL) return error;
  return ((SetRepositoryPath)dlsym(RTLD_NEXT, __func__))(options, folder);
}
