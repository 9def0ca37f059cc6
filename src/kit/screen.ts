import type { Fault } from "./fault.ts";

/** The deny policies that may keep things of one type from a caller. */
export interface Screen {
  /** The refusal of a thing with these names; undefined: it may be had. At once where it was asked before. */
  refusalOf(names: readonly string[], isPattern?: boolean): Fault | undefined | Promise<Fault | undefined>;
}
