/** Sources of an environment, and what one may hold. */
export const webhookSourcesMax = 500;
export const webhookNameCharsMax = 200;
export const eventPrefixBytesMax = 128;
export const webhookMetadataBytesMax = 16 * 1024;
export const verifySecretBytesMax = 1_024;
export const verifyTextBytesMax = 512;
export const toleranceSecondsDefault = 300;
export const toleranceSecondsMax = 24 * 60 * 60;
export const secretGraceSecondsMax = 604_800;
/** Signatures of one request that are compared. */
export const signaturesMax = 32;
export const dedupIdBytesMax = 512;
/** Fields of a form. */
export const formFieldsMax = 10_000;
/** Of an accepted body and of a refused one, as much is kept with the delivery. */
export const keptBodyBytesMax = 1024 * 1024;
export const refusedBodyBytesMax = 64 * 1024;
/** Of each body that a list shows. */
export const listedBodyCharsMax = 16 * 1024;
export const keptHeadersMax = 64;
export const keptHeaderCharsMax = 1_024;
/** Names of headers that a node has judged. */
export const headerNamesKnownMax = 1_000;
export const deliveryErrorCharsMax = 500;
/** Refused requests of one source that leave a row at this node: a second, and at once. */
export const refusalsPerSecond = 10;
export const refusalsBurst = 100;
/** Requests of one source at once, beside the rate of the setting, as seconds of that rate. */
export const burstSeconds = 2;
/** A node caches a source this long: a rotated token or secret works on elsewhere for at most this time. */
export const sourceKeptMs = 500;
export const sourcesCachedMax = 10_000;
/** Of the newest deliveries of an environment, as many are compared with their events. */
export const deliveriesCheckedMax = 2_000;
/** The map of flows counts and names the deliveries among the newest of an environment. */
export const flowDeliveriesMax = 2_000;
