import type { Static } from "@sinclair/typebox";
import type { CausalityShape, Thing_ } from "../../../domain/record/causality/operations.ts";
import { rest } from "../../lib/api.ts";
import { dateTime, instantOf } from "../../lib/format.ts";
import { useLoaded } from "../../lib/hooks.ts";
import { hrefOf } from "../../lib/router.ts";
import { Empty, Failure, Section, Text } from "../../ui/basics.tsx";
import { Icon, type IconName } from "../../ui/icons.tsx";
import { RunStatus } from "../../ui/status.tsx";

export type ThingData = Static<typeof Thing_>;

/** The answer of `GET /api/v1/causality`. */
export type CausalityData = Static<typeof CausalityShape>;

const icons: Record<string, IconName> = {
  ...{ event: "events", run: "runs", step: "step", message: "topics" },
  ...{ delivery: "incoming", letter: "outgoing" },
};

const hrefsOf: Record<string, (thing: ThingData) => string> = {
  event: ({ id }) => hrefOf(["events", id]),
  run: ({ id }) => hrefOf(["runs", id]),
  step({ id }) {
    const [runId = "", ...step] = id.split("/");
    return hrefOf(["runs", runId], { step: step.join("/") });
  },
  message: ({ name }) => hrefOf(["topics", name]),
  delivery: ({ id, name }) => hrefOf(["webhooks-in", name], { delivery: id }),
  letter: ({ name }) => hrefOf(["webhooks-out", name]),
};

function ThingLine({ thing, relation }: { thing: ThingData; relation: string }) {
  const href = hrefsOf[thing.kind]?.(thing);
  const name = <Text of={thing.name || thing.id} />;
  const at = instantOf(thing.at);
  return (
    <li class="thing" style={{ "--level": Math.abs(thing.depth) - 1 }}>
      <Icon name={icons[thing.kind] ?? "link"} size={14} />
      <span class="thing-kind">{thing.kind}</span>
      {href ? <a href={href}>{name}</a> : name}
      {thing.entity_id !== undefined && (
        <Text
          of={thing.entity_id}
          href={hrefOf(["streams", thing.entity_id], { at: `${thing.entity_version}` })}
        />
      )}
      {relation && <span class="tag">{relation}</span>}
      {thing.status && <RunStatus of={thing.status} />}
      <Text of={thing.id} in="code" class="thing-id" />
      <span class="faint number">{at === undefined ? "" : dateTime(at)}</span>
    </li>
  );
}

/** What led to a thing and what it led to. */
export function Causes({ kind, id }: { kind: "run" | "event"; id: string }) {
  const { value, error, reload } = useLoaded(
    (signal) => rest<CausalityData>(`/api/v1/causality?${new URLSearchParams({ kind, id })}`, { signal }),
    [kind, id],
  );
  if (error !== undefined) return <Failure error={error} onRetry={reload} />;
  if (!value) return <p class="faint">Reading…</p>;
  const relationTo = (thing: ThingData) =>
    value.links.find((link) => link.effect_kind === thing.kind && link.effect_id === thing.id)?.relation ??
    "";
  const relationFrom = (thing: ThingData) =>
    value.links.find((link) => link.cause_kind === thing.kind && link.cause_id === thing.id)?.relation ?? "";
  const causes = value.things.filter(({ depth }) => depth < 0).sort((a, b) => b.depth - a.depth);
  const effects = value.things.filter(({ depth }) => depth > 0);
  return (
    <>
      <Section title="What led to it">
        {causes.length === 0 ? (
          <Empty title="Nothing that is known" />
        ) : (
          <ol class="things">
            {causes.map((thing) => (
              <ThingLine key={`${thing.kind} ${thing.id}`} thing={thing} relation={relationFrom(thing)} />
            ))}
          </ol>
        )}
      </Section>
      <Section title="What it led to">
        {effects.length === 0 ? (
          <Empty title="Nothing so far" />
        ) : (
          <ol class="things">
            {effects.map((thing) => (
              <ThingLine key={`${thing.kind} ${thing.id}`} thing={thing} relation={relationTo(thing)} />
            ))}
          </ol>
        )}
        {value.truncated && <p class="hint">There is more, further away.</p>}
        {value.hidden > 0 && <p class="hint">{`${value.hidden} more that policies keep from you.`}</p>}
      </Section>
    </>
  );
}
