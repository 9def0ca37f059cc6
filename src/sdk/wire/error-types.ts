/** Failures of one function with the same code, message and first frame of the stack. */
export interface ErrorGroup {
  /** `listRuns({ errorGroup })` lists its runs. */
  id: string;
  functionId: string;
  /** Empty for none. */
  code: string;
  /** Without numbers, ids and quoted values. */
  message: string;
  /** The first frame of the stack, without its line; empty where there is none. */
  frame: string;
  count: number;
  firstSeenAt: string;
  lastSeenAt: string;
  /** The newest run that failed so. */
  sampleRunId: string;
}

export interface ErrorCalls {
  /** Of one function or of all, seen last first. */
  list(options?: {
    functionId?: string;
    /** Seen then or later. */
    since?: Date | string;
    limit?: number;
    cursor?: string;
  }): Promise<{ groups: ErrorGroup[]; nextCursor: string }>;
  get(id: string): Promise<ErrorGroup>;
}
