export { type UntilOptions, until } from "../../cluster/until.ts";
