// Triton calls these two functions for every model repository: at its start, and for each model that
// SageMaker loads. Preloaded, they ask verify_archive.py first, and what it refuses is Triton's own
// error: nothing of the archive was read before. SageMaker's front end answers it with 400.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
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

// One process checks every archive, since starting Python takes longer than checking a signature.
// It ends with this one, and is started again when it ended by itself.
static int checker(void) {
  static int ours = -1;
  static pid_t child = -1;
  int ends[2];
  if (ours >= 0 && waitpid(child, NULL, WNOHANG) == 0) return ours;
  if (ours >= 0) close(ours);
  ours = -1;
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return -1;
  char *arguments[] = {PYTHON, "-I", "-B", SCRIPT, NULL};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
  if (posix_spawn(&child, PYTHON, &actions, NULL, arguments, environ) == 0)
    ours = ends[0];
  else
    close(ends[0]);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  return ours;
}

// The checker's answer: "ok", a refusal, or nothing when it cannot answer.
static void ask(const char *folder, char *answer, size_t size) {
  static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
  ssize_t length = -1;
  pthread_mutex_lock(&one);
  int socket = checker();
  if (socket >= 0 && send(socket, folder, strlen(folder), MSG_NOSIGNAL) >= 0)
    while ((length = recv(socket, answer, size - 1, 0)) < 0 && errno == EINTR)
      ;
  pthread_mutex_unlock(&one);
  answer[length > 0 ? length : 0] = '\0';
}

static Error *refusal(const char *folder) {
  char sentence[4096];
  if (!is_set(SIGNERS)) return NULL;
  ask(folder, sentence, sizeof sentence);
  if (strcmp(sentence, "ok") == 0) return NULL;
  if (sentence[0] == '\0')
    snprintf(sentence, sizeof sentence,
             "Refused: the signature of %s could not be checked; its log has the reason.", folder);
  return ((ErrorNew)dlsym(RTLD_DEFAULT, "TRITONSERVER_ErrorNew"))(INVALID_ARGUMENT, sentence);
}

Error *TRITONSERVER_ServerRegisterModelRepository(void *server, const char *folder,
                                                  const void **mapping, const uint32_t count) {
  Error *error = refusal(folder);
  if (error != NULL) return error;
  return ((RegisterRepository)dlsym(RTLD_NEXT, __func__))(server, folder, mapping, count);
}

// Of several models this is a folder that `serve` made, without an archive: the checker starts
// while Triton does.
Error *TRITONSERVER_ServerOptionsSetModelRepositoryPath(void *options, const char *folder) {
  const char *several = getenv("SAGEMAKER_MULTI_MODEL");
  Error *error = NULL;
  if (several == NULL || strcmp(several, "true") != 0)
    error = refusal(folder);
  else if (is_set(SIGNERS))
    checker();
  if (error != NULL) return error;
  return ((SetRepositoryPath)dlsym(RTLD_NEXT, __func__))(options, folder);
}
