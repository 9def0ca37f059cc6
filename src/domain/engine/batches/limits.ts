/** Bytes of the data and metadata of one batch; an event that has more is a batch of its own. */
export const batchBytesMax = 1024 * 1024;
/** Open batches, each of a function and a key, that one transaction closes. */
export const batchSliceMax = 50;
/** Events that one transaction takes out of what one function and key have open. */
export const batchTakeMax = 1_000;
