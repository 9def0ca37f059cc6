/** Rows of one transaction of an import, and bytes of their lines after which it is committed. */
export const importRowsMax = 500;
export const importBytesMax = 1024 * 1024;
/** A longer line is in no export: the largest values are a few megabytes. */
export const importLineBytesMax = 64 * 1024 * 1024;
export const importEnvironmentsMax = 1_000;
export const importToldEveryLines = 100_000;
/** Things of a list that are looked through for a name. */
export const listedMax = 200;
/** How often `--watch` looks. */
export const watchMsDefault = 2_000;
/** How long `emit --wait` and `invoke` wait for runs. */
export const waitMsDefault = 30_000;
/** A call that waits gets this much more than what it waits for. */
export const callMarginMs = 20_000;
/** How often a long command says how far it is. */
export const toldEveryMs = 1_000;
export const configFileBytesMax = 1024 * 1024;
/** A tool's answer to an MCP client: a model reads it whole. */
export const mcpAnswerCharsMax = 32_000;
/** Longer than a synchronous start waits by itself. */
export const mcpCallMsMax = 65_000;
export const mcpListDefault = 20;
export const mcpListMax = 100;
/** Inputs and outputs beyond are cut values, unless a client asks for more: of a list, and of one thing. */
export const mcpListedValueBytes = 200;
export const mcpValueBytes = 8_000;
export const mcpAgentToolsMax = 100;
export const mcpTokenCharsMin = 16;
export const mcpBodyBytesMax = 1024 * 1024;
/** Messages at `/mcp` of a node that are answered at once, each of a batch: of one key, and of all. */
export const mcpRequestsMax = 16;
export const mcpRequestsAllMax = 64;
/** How long `svc doctor` waits for one answer. */
export const doctorMsMax = 10_000;
export const clockOffMsMax = 1_000;
/** Functions of connected workers that `svc doctor` looks up. */
export const doctorFunctionsMax = 100;
export const freeBytesMin = 1_000_000_000;
/** Time from a source file's last change to the worker's restart. Editors write a file in several steps. */
export const devReloadMs = 150;
export const devSkipMs = 300;
export const devSkipRunsMax = 100;
export const devStopMs = 5_000;
/** How long the line of a run's end waits for the lines of its steps, in milliseconds. */
export const devEndHeldMs = 250;
/** Time after an event in which its run would have begun. */
export const devUnheardMs = 1_000;
/** Runs that `svc rehearse` plays, and how long the program may take until it has made its worker. */
export const rehearsedDefault = 20;
export const rehearsedMax = 200;
export const rehearsedStartMs = 15_000;
