// A CUDA driver of an H200 that computes nothing, for `gpu.sh --compile`: CubeCL compiles its kernels with NVRTC as for that device and
// keeps them, and every launch does nothing. Memory is addresses that nothing reads or writes.
//
//     cc -O2 -shared -fPIC -o libcuda.so driver.c
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int Status; // 0: success
typedef uint64_t Address;
typedef void *Handle;

// CubeCL repeats what it times until 20 ms have passed on its clock or the device's.
enum { WAIT_MICROSECONDS = 21000 };
static const float EVENT_MILLISECONDS = 25;
static const size_t MEMORY = 150754820096;
static const Handle SOME_HANDLE = (Handle)0x1000;

static Status waited(void) { return usleep(WAIT_MICROSECONDS); }

// Calls whose effect nobody sees.
#define NOTHING(name) Status name(void) { return 0; }
NOTHING(cuInit) NOTHING(cuCtxSetCurrent) NOTHING(cuStreamDestroy_v2) NOTHING(cuStreamWaitEvent)
NOTHING(cuEventRecord) NOTHING(cuEventDestroy_v2) NOTHING(cuMemFree_v2) NOTHING(cuMemFreeAsync)
NOTHING(cuMemcpyHtoDAsync_v2) NOTHING(cuMemcpyHtoD_v2) NOTHING(cuMemcpyDtoDAsync_v2) NOTHING(cuMemcpy2DAsync_v2)
NOTHING(cuFuncSetAttribute) NOTHING(cuLaunchKernel)
NOTHING(cuTensorMapEncodeTiled) NOTHING(cuTensorMapEncodeIm2col) NOTHING(cuTensorMapEncodeIm2colWide)

// Calls that give a handle first.
#define HANDLE(name) Status name(Handle *handle) { *handle = SOME_HANDLE; return 0; }
HANDLE(cuDevicePrimaryCtxRetain) HANDLE(cuStreamCreate) HANDLE(cuStreamCreateWithPriority) HANDLE(cuEventCreate)
HANDLE(cuModuleLoadData) HANDLE(cuModuleGetFunction)

Status cuDriverGetVersion(int *version) { *version = 13000; return 0; }
Status cuDeviceGet(int *device, int index) { *device = index; return 0; }
Status cuDeviceGetCount(int *count) { *count = 1; return 0; }
Status cuDeviceGetName(char *name, int length, int device) { strncpy(name, "NVIDIA H200", length); return 0; }
Status cuDeviceGetPCIBusId(char *id, int length, int device) { strncpy(id, "0000:01:00.0", length); return 0; }
Status cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = MEMORY; return 0; }
Status cuCtxGetStreamPriorityRange(int *least, int *greatest) { *least = 0; *greatest = -5; return 0; }

// By the numbers of CUdevice_attribute in cuda.h.
Status cuDeviceGetAttribute(int *value, int attribute, int device) {
    switch (attribute) {
    case 1: case 2: case 3: *value = 1024; break; // units of a cube, and in x and y
    case 4: *value = 64; break;                   // in z
    case 5: *value = 2147483647; break;           // cubes in x
    case 6: case 7: *value = 65535; break;        // in y and z
    case 10: *value = 32; break;                  // units of a warp
    case 16: *value = 132; break;                 // multiprocessors
    case 75: *value = 9; break;                   // compute capability 9.0
    case 97: *value = 232448; break;              // bytes of shared memory that a cube can ask for
    default: *value = 0;
    }
    return 0;
}

Status cuStreamSynchronize(Handle stream) { return waited(); }
Status cuEventSynchronize(Handle event) { return waited(); }
Status cuEventElapsedTime_v2(float *milliseconds, Handle start, Handle end) { *milliseconds = EVENT_MILLISECONDS; return 0; }
Status cuEventElapsedTime(float *milliseconds, Handle start, Handle end) { return cuEventElapsedTime_v2(milliseconds, start, end); }

Status cuMemAlloc_v2(Address *address, size_t bytes) {
    static Address next = 1ull << 44;
    *address = __sync_fetch_and_add(&next, (bytes + 65535) & ~(Address)65535);
    return 0;
}
Status cuMemAllocAsync(Address *address, size_t bytes, Handle stream) { return cuMemAlloc_v2(address, bytes); }
Status cuMemAllocHost_v2(void **memory, size_t bytes) { *memory = malloc(bytes); return *memory ? 0 : 2; }
Status cuMemFreeHost(void *memory) { free(memory); return 0; }
Status cuMemcpyDtoHAsync_v2(void *to, Address from, size_t bytes, Handle stream) { memset(to, 0, bytes); return 0; }
Status cuGetErrorName(Status error, const char **text) { *text = "no error"; return 0; }
Status cuGetErrorString(Status error, const char **text) { *text = "no error"; return 0; }
