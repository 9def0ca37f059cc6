/** Attributes of one run; also those that one report sets, or that a function takes from its events. */
export const attributesMax = 32;
/** Names of attributes in one environment. */
export const attributeNamesMax = 200;
export const attributeTextBytesMax = 256;
export const attributePathBytesMax = 512;
/** Filters of one list. */
export const attributeFiltersMax = 8;
/** Runs that are counted of one name in the list of names. */
export const attributeRunsCountedMax = 1_000;
/** Names whose runs are counted by one statement. */
export const namesCountedAtOnce = 20;
/** A deleted name's values are purged after this time: a flush from before the deletion has ended by then. */
export const attributeSettleMs = 2_000;
/** Environments that one round of the purge looks after, a name and a slice of its values each. */
export const purgedEnvironmentsMax = 500;
/** A tick of the purge begins no round after this. */
export const attributePurgeMs = 5_000;
/** Environments whose names a node keeps in memory. */
export const namesKeptMax = 5_000;
/** Runs that one page looks at, in their order, for those that match all filters. */
export const candidatesMax = 10_000;
/** A filter that so few runs match is looked up first, whatever the order. */
export const fewRunsMax = 1_000;
