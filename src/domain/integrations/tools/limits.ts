/** Agents of an environment, and the tools of one of them. */
export const agentsMax = 100;
export const toolsOfAgentMax = 100;
/** Tools of an environment, and their schemas and descriptions together. */
export const toolsMax = 1_000;
export const toolsBytesMax = 4 * 1024 * 1024;
export const agentNameBytesMax = 100;
export const toolNameBytesMax = 100;
/** With the dot between the two. */
export const qualifiedNameBytesMax = agentNameBytesMax + 1 + toolNameBytesMax;
export const callbackUrlBytesMax = 1_024;
export const toolDescriptionBytesMax = 4 * 1024;
export const toolSchemaBytesMax = 64 * 1024;
export const requiredScopesMax = 20;
export const agentSecretBytes = 32;
export const toolPageMax = 100;
/** How long the callback of a tool may take, when its registration says nothing and at most. */
export const toolTimeoutMsDefault = 30_000;
export const toolTimeoutMsMax = 5 * 60 * 1000;
export const toolInputBytesMax = 1024 * 1024;
export const toolAnswerBytesMax = 1024 * 1024;
/** Calls of one environment's tools that a node has under way. */
export const toolCallsMax = 50;
/** The same of all environments. */
export const toolCallsOfAllMax = 68;
/** What is passed on of an error that a tool answers. */
export const toolErrorCodeCharsMax = 64;
export const toolErrorCharsMax = 2_000;
/** Schemas that a node keeps compiled, and their size in memory. */
export const compiledSchemasMax = 2_000;
export const compiledSchemasCharsMax = 64 * 1024 * 1024;
