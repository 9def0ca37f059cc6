import type { Static } from "@sinclair/typebox";
import type { IntegrityShape, OffendersShape } from "../../domain/record/integrity/operations.ts";
import { rest } from "../lib/api.ts";
import { count, duration, plain } from "../lib/format.ts";
import { useLoaded, useNet, usePages } from "../lib/hooks.ts";
import { address, hrefOf, queryOf, setQuery } from "../lib/router.ts";
import { may } from "../lib/session.ts";
import { Button, Empty, Failure, Page, Section, Text, When } from "../ui/basics.tsx";
import { Status } from "../ui/status.tsx";
import { ReadTable, Table } from "../ui/table.tsx";

type CheckData = IntegrityData["checks"][number];

type IntegrityData = Static<typeof IntegrityShape>;

const readMs = 15_000;

type OffenderData = Static<typeof OffendersShape>["rows"][number];

/** The pages of things whose ids do not tell what they are, by the first word of the check. */
const pagesOfChecks: Record<string, (id: string) => readonly string[]> = {
  cron: (id) => ["functions", id.slice(0, id.lastIndexOf(":"))],
  batches: (id) => ["functions", id.slice(0, id.lastIndexOf(":"))],
  debounces: (id) => ["functions", id.split(":", 1)[0]!],
  projections: (id) => ["projections", id],
  streams: (id) => ["streams", id],
  groups: (id) => ["groups", ...id.split("/")],
  agents: (id) => ["tools", id],
  kv: (id) => ["kv", id.replace(/^bucket /, "")],
};

/** The page of a thing, by how its id begins or by what is checked. */
function pathOf(check: string, id: string): readonly string[] | undefined {
  if (id.startsWith("run_")) return ["runs", id];
  if (id.startsWith("evt_")) return ["events", id];
  if (id.startsWith("whe_")) return ["webhooks-out", id];
  return pagesOfChecks[check.split(".", 1)[0]!]?.(id);
}

/** What must balance, with the thing that has waited longest behind each number. */
export function IntegrityPage() {
  const { value, error, reload } = useLoaded(
    (signal) => rest<IntegrityData>("/api/v1/integrity", { signal }),
    [],
  );
  useNet(reload, readMs);
  const shown = address.value.query.get("check") ?? "";
  return (
    <Page
      title={
        <>
          Integrity
          {value && <Status of={value.balanced ? "balanced" : "unbalanced"} />}
        </>
      }
      about={
        value && (
          <>
            {"Checked "}
            <When at={value.checked_at} />
          </>
        )
      }
    >
      {error !== undefined && <Failure error={error} onRetry={reload} />}
      {!value && error === undefined && <p class="faint">Reading…</p>}
      {value && <Checks of={value.checks} />}
      {shown !== "" && <Rows key={shown} check={shown} />}
      {value && (
        <Section title="Deleted environments">
          {value.purging.environments === 0 ? (
            <Empty title="None has rows left" />
          ) : (
            <p>
              {`${count(value.purging.environments)} may have rows that are still to be deleted`}
              {value.purging.oldest && (
                <>
                  {"; the first is "}
                  <Text of={value.purging.oldest.id} in="code" />
                  {`, deleted ${duration(value.purging.oldest.age_ms)} ago`}
                </>
              )}
              .
            </p>
          )}
        </Section>
      )}
    </Page>
  );
}

const Checks = ({ of }: { of: readonly CheckData[] }) => (
  <Section title="Checks">
    <Table
      rows={[...of].sort((one, other) => other.count - one.count)}
      label="Checks"
      keyOf={({ name }) => name}
      columns={[
        {
          name: "Check",
          of: ({ name, about }) => (
            <>
              {name}
              <span class="under">{about}</span>
            </>
          ),
        },
        {
          name: "State",
          of: ({ count: found, failed }) => (
            <Status of={failed ? "failed" : found === 0 ? "balanced" : "unbalanced"} />
          ),
        },
        {
          name: "Found",
          isNumber: true,
          of: ({ name, count: found }) =>
            found === 0 || !may("orgs:read") ? (
              count(found)
            ) : (
              <a href={hrefOf(["integrity"], { check: name })}>{count(found)}</a>
            ),
        },
        { name: "Waits longest", of: (check) => <Oldest of={check} /> },
        {
          name: "Mended by itself",
          isNumber: true,
          of: ({ healed, healed_at }) => (
            <>
              {count(healed)}
              {healed_at && (
                <span class="under">
                  <When at={healed_at} />
                </span>
              )}
            </>
          ),
        },
      ]}
    />
  </Section>
);

/** The rows behind a number, with a link to each thing that has a page. */
function Rows({ check }: { check: string }) {
  const read = usePages(
    async (cursor, signal) => {
      const path = `/api/v1/integrity/${encodeURIComponent(check)}/rows${queryOf({ cursor })}`;
      const page = await rest<{ rows: OffenderData[]; next_cursor?: string }>(path, { signal });
      return { rows: page.rows, next: page.next_cursor };
    },
    [check],
  );
  useNet(read.reload, readMs);
  return (
    <Section
      title={`Behind ${plain(check)}`}
      aside={<Button onClick={() => setQuery({ check: "" }, {})}>Close</Button>}
    >
      <ReadTable
        read={read}
        label="Rows"
        keyOf={({ id, at = "" }) => `${id} ${at}`}
        columns={[
          { name: "Row", of: ({ id }) => <Thing check={check} id={id} /> },
          {
            name: "What it says",
            of: ({ facts }) => (
              <span class="row-actions">
                {Object.entries(facts).map(([name, value]) => (
                  <span key={name}>
                    <span class="faint">{`${plain(name)} `}</span>
                    <Text of={typeof value === "number" ? count(value) : value} />
                  </span>
                ))}
              </span>
            ),
          },
          { name: "Since", isNumber: true, of: ({ at }) => <When at={at} /> },
        ]}
        empty="It is balanced by now"
      />
    </Section>
  );
}

function Thing({ check, id }: { check: string; id: string }) {
  const path = pathOf(check, id);
  const text = <Text of={id} in="code" />;
  return path ? <a href={hrefOf(path)}>{text}</a> : text;
}

function Oldest({ of: { name, oldest } }: { of: CheckData }) {
  if (!oldest) return <span class="faint">–</span>;
  return (
    <>
      <Thing check={name} id={oldest.id} />
      <span class="under">{duration(oldest.age_ms)}</span>
    </>
  );
}
