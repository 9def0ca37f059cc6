import { type DescMessage, type MessageShape, toJson } from "@bufbuild/protobuf";
import { Type } from "@sinclair/typebox";
import { rfc3339 } from "../../../kit/clock.ts";
import { described, maybe, shape } from "../../../kit/described.ts";
import { boundsOf, type RuleRow, storedTargetsOf } from "./rule-rows.ts";
import { conditionNames } from "./rules.ts";
import type { ShownAlert } from "./service.ts";

const text = Type.String();
const count = Type.Integer();

const targetFields = {
  type: shape.text("`webhook`, `slack` or `email`."),
  url: maybe.text(
    "Of a webhook without its query, of Slack without its end: as it is shown it stands for itself.",
  ),
  secret: maybe.text("Name of the environment's secret that signs a webhook."),
  to: Type.Optional(Type.Array(text, { maxItems: 100, description: "Addresses of an e-mail." })),
};
export const TargetShape = Type.Object(targetFields);

export const boundFields = {
  share: maybe.number("From 0 to 1; of `failure_share` and `quota_near`."),
  window_minutes: Type.Optional(described(count, "How many minutes `failure_share` looks back.")),
  minimum: Type.Optional(described(count, "How many runs must have ended in the window.")),
  waiting_ms: Type.Optional(described(count, "How long a run may wait, in milliseconds.")),
};

export const RuleShape = Type.Object({
  name: shape.text("Name of the rule, unique in its environment."),
  condition: shape.text(`What it looks for: one of ${conditionNames.join(", ")}.`),
  function_id: maybe.text("Id of the one function that it looks at; absent for all."),
  ...boundFields,
  targets: Type.Array(TargetShape, { description: "Whom it tells." }),
  repeat_after_ms: described(count, "While it lasts, targets are told again after this long; 0 for never."),
  resolve_after_ms: described(count, "What happens is over when it has not happened for this long."),
  silenced_until: maybe.time("Nobody is told before."),
  created_at: shape.time("When it was made, RFC 3339."),
  updated_at: shape.time("When it was last changed, RFC 3339."),
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

const DeliveryShape = Type.Object({
  target: shape.text("The target as it is shown."),
  kind: shape.text("`opened`, `repeated` or `resolved`."),
  state: shape.text("`waiting`, `sent` or `given_up`."),
  attempts: described(count, "How often it was tried."),
  last_error: maybe.text("Of the last attempt that failed."),
  sent_at: maybe.time("When the target took a message last."),
});

export const AlertShape = Type.Object({
  id: shape.text("Id of the alert (`alr_…`)."),
  rule: shape.text("Name of the rule that found it."),
  condition: shape.text("What the rule looks for."),
  subject: maybe.text("The thing that it is about; absent for the environment."),
  detail: maybe.text("What was found, in words; absent where policies may hide what it names."),
  count: described(count, "How often it happened, or how many there are."),
  state: shape.text("`open` or `resolved`."),
  opened_at: shape.time("When it was found first."),
  seen_at: shape.time("When it was found last."),
  told_at: maybe.time("When targets were told last."),
  resolved_at: maybe.time("When it was over, or a person resolved it."),
  resolved_by: maybe.text("Id of the caller who resolved it; absent where it ended by itself."),
  deliveries: Type.Array(DeliveryShape, { description: "What each target was told last." }),
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
