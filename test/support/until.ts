/** Tests and the tools of cluster/ wait in one way. */
export { type UntilOptions, until } from "../../cluster/until.ts";
