/** Runs of one function, deployment and state that one transaction moves. */
export const pinSliceMax = 500;
/** So many transactions a look spends on one place. */
export const pinSlicesMax = 10;
/** Such places that one look goes through. */
export const pinPlacesMax = 10_000;
