/** What a partition comes to: it depends on the order of its events, and on each being there once. */
export interface FoldState {
  count: number;
  digest: string;
}

export const begin: FoldState = { count: 0, digest: "" };

export const fold = ({ count, digest }: FoldState, n: number): FoldState => ({
  count: count + 1,
  digest: Bun.hash.wyhash(`${digest} ${n}`).toString(16),
});
