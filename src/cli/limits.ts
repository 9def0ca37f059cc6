/** Rows of one transaction of an import, and bytes of their lines after which it is committed. */
export const importRowsMax = 500;
export const importBytesMax = 1024 * 1024;
/** A longer line is in no export: the largest values are a few megabytes. */
export const importLineBytesMax = 64 * 1024 * 1024;
export const importEnvironmentsMax = 1_000;
export const importToldEveryLines = 100_000;
