/** How often a node writes what it counted; what it has not written is lost when it is killed. */
export const usageWriteMs = 60_000;
/** Functions that are counted apart in one environment and day. Those beyond are counted together. */
export const usageFunctionsMax = 1_000;
/** Ended runs of one environment whose functions a node looks up at its next write. */
export const usageUnnamedMax = 10_000;
/** Runs that one statement looks up. */
export const usageNamedMax = 100;
/** Rows of one statement. */
export const usageRowsMax = 1_000;
/** Days of one answer. */
export const usageDaysDefault = 30;
export const usageDaysMax = 92;
/** Functions of one answer, those with the most runs; the others are counted together. */
export const usageShownMax = 1_000;
/** Days that counts are kept. */
export const usageKeptDays = 400;
