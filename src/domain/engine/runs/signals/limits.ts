/** Signals of one run that no step has taken. */
export const signalsKeptMax = 1_000;
/** Signals that steps take in one transaction. */
export const signalsTakenMax = 500;
/** JSON of one signal. */
export const signalDataBytesMax = 64 * 1024;
/** A list of signals shows data up to so many characters. */
export const signalCharsShown = 4_096;
