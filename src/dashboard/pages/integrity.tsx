import { rest } from "../lib/api.ts";
import { count, duration, instantOf } from "../lib/format.ts";
import { useLoaded, useNet } from "../lib/hooks.ts";
import { hrefOf } from "../lib/router.ts";
import { may } from "../lib/session.ts";
import { Empty, Failure, PageHead, Section, Text, When } from "../ui/basics.tsx";
import { Status } from "../ui/status.tsx";
import { Table } from "../ui/table.tsx";

interface OldestData {
  id: string;
  age_ms: number;
}

interface CheckData {
  name: string;
  about: string;
  count: number;
  oldest?: OldestData;
  healed: number;
  healed_at?: string;
}

interface IntegrityData {
  balanced: boolean;
  checked_at: string;
  checks: CheckData[];
  purging: { environments: number; oldest?: OldestData };
}

const readMs = 15_000;

const pagesOfChecks: Record<string, string> = { cron: "functions", projections: "projections" };

/** The page of a thing, by how its id begins or by what is checked. */
function pathOf(check: string, id: string): readonly string[] | undefined {
  if (id.startsWith("run_")) return ["runs", id];
  if (id.startsWith("evt_")) return ["events", id];
  const page = pagesOfChecks[check.split(".", 1)[0]!];
  return page === undefined ? undefined : [page, id];
}

/** What must balance, with the thing that has waited longest behind each number. */
export function IntegrityPage() {
  const { value, error, reload } = useLoaded(
    (signal) => rest<IntegrityData>("/api/v1/integrity", { signal }),
    [],
  );
  useNet(reload, readMs);
  return (
    <div class="page">
      <PageHead
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
              <When at={instantOf(value.checked_at)} />
            </>
          )
        }
      />
      {error !== undefined && <Failure error={error} onRetry={reload} />}
      {!value && error === undefined && <p class="faint">Reading…</p>}
      {value && <Checks of={value.checks} />}
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
                  <code>
                    <Text of={value.purging.oldest.id} />
                  </code>
                  {`, deleted ${duration(value.purging.oldest.age_ms)} ago`}
                </>
              )}
              .
            </p>
          )}
        </Section>
      )}
    </div>
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
        { name: "State", of: ({ count: found }) => <Status of={found === 0 ? "balanced" : "unbalanced"} /> },
        { name: "Found", isNumber: true, of: ({ count: found }) => count(found) },
        { name: "Waits longest", of: (check) => <Oldest of={check} /> },
        {
          name: "Mended by itself",
          isNumber: true,
          of: ({ healed, healed_at }) => (
            <>
              {count(healed)}
              {healed_at && (
                <span class="under">
                  <When at={instantOf(healed_at)} />
                </span>
              )}
            </>
          ),
        },
      ]}
    />
  </Section>
);

function Oldest({ of: { name, oldest } }: { of: CheckData }) {
  if (!oldest) return <span class="faint">–</span>;
  const path = pathOf(name, oldest.id);
  const id = (
    <code>
      <Text of={oldest.id} />
    </code>
  );
  return (
    <>
      {path && may("runs:read") ? <a href={hrefOf(path)}>{id}</a> : id}
      <span class="under">{duration(oldest.age_ms)}</span>
    </>
  );
}
