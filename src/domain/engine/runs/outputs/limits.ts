/** JSON of one chunk of an output. */
export const outputChunkBytesMax = 64 * 1024;
/** Chunks, and their JSON, of one write. */
export const outputWriteChunksMax = 2_000;
export const outputWriteBytesMax = 256 * 1024;
/** JSON of all chunks of one output, and the same with those that are superseded. */
export const outputBytesMax = 4 * 1024 * 1024;
export const outputStoredBytesMax = 16 * 1024 * 1024;
/** Outputs of one run. */
export const outputsMax = 8;
/** Readers of outputs at a node, of one caller and of all. */
export const outputReadersMax = 200;
export const outputReadersAllMax = 2_000;
/** A reader that takes nothing for this long is cut. */
export const outputIdleMs = 60_000;
/** Readers of a run without a hint look this often; more seldom where the bus tells them of every write. */
export const outputLookMs = 1_000;
export const outputToldLookMs = 5_000;
/** A reader is sent something with the first look after this. */
export const outputBeatMs = 15_000;
/** Writes that a reader reads in one query. */
export const outputRowsRead = 16;
/** What a list shows of the end of an output. */
export const outputCharsShown = 8_192;
/** Writes of a flush may wait this long for others, where they come one upon another. */
export const outputFlushMs = 40;
/** Readers of a run are woken together; each of them makes the next time a little later, up to the most. */
export const outputPaceMsEach = 0.25;
export const outputPaceMsMax = 150;
/** Of one query that reads on: chunks of an output, about the bytes of their JSON, and outputs. */
export const outputChunksRead = 512;
export const outputBytesRead = 512 * 1024;
export const outputReadsAtOnce = 64;
/** JSON that a reader is handed at once, unless one chunk is larger. */
export const outputBatchChars = 64 * 1024;
/** What was read just now and is kept for readers who come a little later, of all outputs at a node. */
export const outputReadsKept = 1_024;
export const outputCharsKept = 8 * 1024 * 1024;
