// Conversations that declare tools: the user asks for something, the model calls the right tool with typed arguments, a
// result may come back and is put into words. Tool names, parameter names, their number and the other declared tools
// vary, so the schema has to be read.
#pragma once

#include "train/tasks/problem.h"

namespace k3::train {

// heldout: always ends with the call (messages: user, assistant with one call).
Document tool_conversation(Random& random, Split split);

}  // namespace k3::train
