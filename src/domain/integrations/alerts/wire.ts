import { type DescMessage, type MessageShape, toJson } from "@bufbuild/protobuf";
import { Type } from "@sinclair/typebox";
import {
  AlertDeliverySchema,
  AlertRuleSchema,
  AlertSchema,
  AlertTargetSchema,
} from "../../../gen/svc/v1/alert_pb.ts";
import { rfc3339 } from "../../../kit/clock.ts";
import { shapeOf } from "../../../kit/message-shape.ts";
import { boundsOf, type RuleRow, storedTargetsOf } from "./rule-rows.ts";
import type { ShownAlert } from "./service.ts";

export const TargetShape = shapeOf(AlertTargetSchema, {
  absent: "url secret",
  own: { to: Type.Optional(Type.Array(Type.String(), { maxItems: 100 })) },
});

export const RuleShape = shapeOf(AlertRuleSchema, {
  absent: "function_id share window_minutes minimum waiting_ms silenced_until",
  own: { targets: Type.Array(TargetShape) },
});

export const ruleJson = (row: RuleRow) => ({
  ...{ name: row.name, condition: row.condition },
  ...(row.function_id !== null && { function_id: row.function_id }),
  ...boundsOf(row),
  targets: storedTargetsOf(row).map(({ shown }) => ({ ...shown, ...(shown.to && { to: [...shown.to] }) })),
  ...{ repeat_after_ms: row.repeat_after_ms, resolve_after_ms: row.resolve_after_ms },
  ...(row.silenced_until !== null && { silenced_until: rfc3339(row.silenced_until) }),
  ...{ created_at: rfc3339(row.created_at), updated_at: rfc3339(row.updated_at) },
});

const DeliveryShape = shapeOf(AlertDeliverySchema, { absent: "last_error sent_at" });

export const AlertShape = shapeOf(AlertSchema, {
  absent: "subject detail told_at resolved_at resolved_by",
  own: { deliveries: Type.Array(DeliveryShape) },
});

export const alertJson = ({ row, deliveries }: ShownAlert) => ({
  ...{ id: row.id, rule: row.rule, condition: row.condition },
  ...(row.subject !== "" && { subject: row.subject }),
  ...(row.detail !== "" && { detail: row.detail }),
  ...{ count: row.count, state: row.resolved_at === null ? "open" : "resolved" },
  ...{ opened_at: rfc3339(row.opened_at), seen_at: rfc3339(row.seen_at) },
  ...(row.told_at !== null && { told_at: rfc3339(row.told_at) }),
  ...(row.resolved_at !== null && { resolved_at: rfc3339(row.resolved_at) }),
  ...(row.resolved_by !== null && { resolved_by: row.resolved_by }),
  deliveries: deliveries.map(({ shown, kind, state, attempts, last_error, sent_at }) => ({
    ...{ target: shown, kind, state, attempts },
    ...(last_error !== null && { last_error }),
    ...(sent_at !== null && { sent_at: rfc3339(sent_at) }),
  })),
});

/** A message as the JSON that REST takes. */
export const inputOf =
  <Desc extends DescMessage, Input>(schema: Desc) =>
  (message: MessageShape<Desc>): Input =>
    toJson(schema, message, { useProtoFieldName: true }) as Input;
