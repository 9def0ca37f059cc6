/** A projection that a call reads. */
export interface ProjectionRead {
  name: string;
  /** Left out or empty: all of it. */
  partition?: string | undefined;
}

/** The store's log, or the projections that are folded from it. */
export type ReadFirst = "log" | readonly ProjectionRead[];

/**
 * What must have reached the position of `X-Svc-Min-Sequence` before a call begins: the store's log; this
 * node's feed of it, which may lag; or what the input names.
 */
export type WaitsFor =
  | "log"
  | "feed"
  | ((input: never, environmentId: string) => ReadFirst | Promise<ReadFirst>);

/** For operations whose input names the one projection that they read. */
export const namedProjection = ({ name, partition }: ProjectionRead): ProjectionRead[] => [
  { name, partition },
];
