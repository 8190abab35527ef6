/* Keeps the list of a host half's faults, and knows which launch attributes are allowed. */
#include "launch_contract.h"

#include <stdarg.h>
#include <stdio.h>

static char faults[8192];
static size_t faults_used;

void fault(const char *kind, const char *format, ...) {
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    int room = (int)(sizeof faults - faults_used);
    int used = snprintf(faults + faults_used, (size_t)room, "%s\t%s\n", kind, line);
    if (used < room) faults_used += (size_t)used;
    else faults[faults_used] = 0;
}

const char *fault_lines(void) { return faults; }

void clear_faults(void) {
    faults_used = 0;
    faults[0] = 0;
}

int attribute_allowed(cudaLaunchAttributeID id) {
    return id == cudaLaunchAttributeIgnore || id == cudaLaunchAttributeCooperative
        || id == cudaLaunchAttributeClusterDimension
        || id == cudaLaunchAttributeClusterSchedulingPolicyPreference
        || id == cudaLaunchAttributeProgrammaticStreamSerialization;
}
