/** Schemas of an environment, and their texts together. */
export const schemasMax = 1_000;
export const schemasBytesMax = 4 * 1024 * 1024;
export const schemaVersionMax = 2_147_483_647;
export const descriptionBytesMax = 2_000;

/** Changes that bring data of the version before up to a schema. */
export const upcastOperationsMax = 50;
/** Of them, those that are expressions: one takes up to a millisecond to compile. */
export const upcastExpressionsMax = 10;
/** Versions that data is brought up over in one go. */
export const upcastStepsMax = 50;
/** What all expressions of one bringing up may look at, in items of `kit/cel/bounds.ts`. */
export const upcastItemsMax = 100_000;
/** The same of a page of events, to which each event adds a little. */
export const upcastPageItemsMax = 250_000;
export const upcastItemsAnEvent = 100;
/** Data that was brought up may be larger than it was: a page of it, and so many bytes of JSON each. */
export const upcastPageCharsMax = 16 * 1024 * 1024;
export const upcastBytesMax = 4 * 1024 * 1024;

/** How far back traffic is looked at, in hours, and how much of it in one call. */
export const trafficHoursDefault = 24;
export const trafficHoursMax = 168;
export const trafficEventsMax = 2_000;
export const trafficBytesMax = 16 * 1024 * 1024;
export const trafficComputeMsMax = 500;
export const trafficSliceMax = 20;
/** Schemas that one look at the enforcement answers. */
export const checkedSchemasMax = 200;
/** Kinds of traffic that are told apart for one schema. */
export const trafficKindsMax = 50;
