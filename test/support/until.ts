import { until as poll, type UntilOptions } from "../../cluster/until.ts";

export type { UntilOptions };

/** What a machine under load may need for anything. A deadline is no claim: whoever claims a time measures it. */
const deadlineMs = 20_000;

/** Tests and the tools of cluster/ wait in one way, tests with more patience. */
export const until: typeof poll = (condition, options) => poll(condition, { deadlineMs, ...options });
