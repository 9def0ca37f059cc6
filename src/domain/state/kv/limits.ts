/** Buckets of an environment. */
export const bucketsMax = 1_000;
export const bucketNameCharsMax = 64;
/** Buckets of the product's own begin so; to callers they are not there. */
export const ownPrefix = "SYS_";
export const descriptionCharsMax = 1_000;
/** A key is part of an index. */
export const keyBytesMax = 512;
/** Of one value, unless its bucket says less or more, and at most. */
export const valueBytesDefault = 1024 * 1024;
export const valueBytesMax = 8 * 1024 * 1024;
/** Keys that a list of a bucket of the product's own has. */
export const ownKeysMax = 10_000;
/** Of a value that is read together with others; a larger one is read alone. */
export const readTogetherBytesMax = 16 * 1024;
/** Environments for which a node keeps values for gets of unchanged buckets; keys and characters of each. */
export const cachedEnvironmentsMax = 16;
export const cachedKeysMax = 20_000;
export const cachedCharsMax = 4 * 1024 * 1024;
/** How long one is used: a database set back under its nodes may reuse revisions with other values. */
export const cachedMs = 60_000;
/** Values of one key that a bucket keeps. */
export const historyMax = 64;
export const ttlSecondsMax = 10 * 366 * 24 * 60 * 60;
/** How long a deleted key leaves a marker with the revision of its deletion. */
export const markerKeptMs = 24 * 60 * 60 * 1000;
/** Keys in one answer, and rows looked through for them. */
export const keysPageMax = 10_000;
export const keysScanMax = 100_000;
export const keysSlice = 1_000;
/** Changes that a watch reads from an index at once, and the bytes of values that it reads together. */
export const watchSlice = 500;
export const watchBytesAtOnce = 1024 * 1024;
/** What waits for a watch's reader; beyond, it is read from the store again once the reader is there. */
export const watchAheadBytesMax = 1024 * 1024;
export const watchAheadMax = 1_000;
/** Reads of the watches of one environment at once, of the node's few connections. */
export const watchReadsAtOnce = 2;
/** Watched buckets in one statement. */
export const watchedSlice = 500;
/** The longest time that a get waits for other gets to share its statement. */
export const getPaceMs = 2;
/** Half of the callers of gets go together: the edge answers the others meanwhile. */
export const getShare = 0.5;
