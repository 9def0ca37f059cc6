/** Issuers of an org. */
export const issuersMax = 10;
/** Pairs of a value and a role of one issuer. */
export const mappingMax = 200;
export const issuerNameCharsMax = 100;
/** Of texts of an issuer. */
export const clientIdCharsMax = 500;
export const clientSecretCharsMax = 2_000;
export const scopesCharsMax = 500;
/** Values of a claim that are looked up; more are passed over. */
export const claimValuesMax = 1_000;

/** One call of a provider: discovery, keys, a code, a token. */
export const providerTimeoutMs = 5_000;
export const providerAnswerBytesMax = 1024 * 1024;
/** Sign-ins by one issuer that a node has under way, and by all: who hangs holds up its own alone. */
export const exchangesMax = 8;
export const exchangesOfAllMax = 64;
/** How long a node believes a provider's discovery and keys. */
export const providerKeptMs = 10 * 60_000;
/** And how long it does not ask again for a discovery that could not be had: who signs in is told at once. */
export const providerFailedMs = 5_000;
/** A provider's keys are read again for an unknown key id at most once in this time. */
export const keysAgainMs = 30_000;
/** Providers whose discovery and keys a node keeps. */
export const providersKept = 1_000;
/** How far a provider's clock may be off. */
export const providerClockSeconds = 60;

/** From the start of a sign-in to its callback. */
export const flowMs = 10 * 60_000;
export const returnToCharsMax = 1_000;
/** A logout token that is older is refused. */
export const logoutTokenSeconds = 300;
/** Seconds between two looks of a device at least: as many as the limit on attempts lets through. */
export const deviceIntervalSeconds = 7;
/** What a device asks for its session with. */
export const deviceCodeCharsMax = 4_000;
