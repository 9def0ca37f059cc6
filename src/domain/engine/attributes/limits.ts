/** Attributes of one run; also those that one report sets, and those that a function takes from its events. */
export const attributesMax = 32;
/** Names of attributes in one environment. */
export const attributeNamesMax = 200;
export const attributeTextBytesMax = 256;
export const attributePathBytesMax = 512;
/** Filters of one list. */
export const attributeFiltersMax = 8;
/** Environments whose names a node keeps in memory. */
export const namesKeptMax = 5_000;
/** Runs that one page looks at, in their order, for those that match all filters. */
export const candidatesMax = 10_000;
/** A filter that so few runs match is looked up first, whatever the order. */
export const fewRunsMax = 1_000;
