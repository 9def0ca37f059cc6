/** Values that are larger come by how they begin; one in full is read when somebody wants it. */
export const shownBytesMax = 16 * 1_024;

export interface CutView {
  bytes: number;
  begins: string;
}

/** By the field that would have the value, in the wire's spelling. */
export type Cuts = Readonly<Record<string, CutView>>;

export const cutsOf = (
  list: readonly { field: string; bytes: number; begins?: string }[] | undefined,
): Cuts =>
  Object.fromEntries((list ?? []).map(({ field, bytes, begins = "" }) => [field, { bytes, begins }]));
