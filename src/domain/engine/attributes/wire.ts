import type { AttributeFilter } from "../../../gen/svc/v1/types_pb.ts";
import { rfc3339 } from "../../../kit/clock.ts";
import { instantOf } from "../../../kit/wkt.ts";
import type { AttributeFilterInput } from "./rules.ts";

export function filterOfMessage({ name, op, value }: AttributeFilter): AttributeFilterInput {
  const head = { name, ...(op && { op }) };
  if (value.case === undefined) return head;
  if (value.case === "time") return { ...head, time: rfc3339(instantOf(value.value)) };
  return { ...head, [value.case]: value.value };
}
