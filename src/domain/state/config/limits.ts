/** Documents of an environment. */
export const configsMax = 1_000;
/** Of one document, as JSON. */
export const configBytesMax = 1024 * 1024;
export const configNameCharsMax = 128;
