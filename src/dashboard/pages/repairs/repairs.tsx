import { useState } from "preact/hooks";
import { count, instantOf } from "../../lib/format.ts";
import { useLoaded, useNet } from "../../lib/hooks.ts";
import { isEnded, listRepairs, outcomes, type RepairData, totalOf } from "../../lib/repairs.ts";
import { hrefOf } from "../../lib/router.ts";
import { Button, Empty, Failure, PageHead, Text, When } from "../../ui/basics.tsx";
import { lookOf, Status } from "../../ui/status.tsx";

/** Repairs have no frames: while one works it is read again this often. */
export const workingMs = 5_000;
export const restingMs = 30_000;

export const actionWords: Record<string, string> = {
  cancel: "Cancel",
  resume: "Resume",
  rerun: "Run again",
  patch: "Patch",
  inject: "Inject",
};

/** How far a repair is, as a bar of its outcomes. */
export function Progress({ of }: { of: RepairData }) {
  const total = totalOf(of);
  const said = outcomes
    .filter((outcome) => of.counts[outcome] > 0)
    .map((outcome) => `${count(of.counts[outcome])} ${lookOf(outcome).word.toLowerCase()}`)
    .join(", ");
  return (
    <span class="progress" role="img" aria-label={said || "nothing yet"} title={said}>
      {outcomes.map((outcome) => (
        <span
          key={outcome}
          class={`progress-part ${lookOf(outcome).tone} ${outcome === "pending" ? "pending" : ""}`}
          style={{ width: `${total === 0 ? 0 : (of.counts[outcome] / total) * 100}%` }}
        />
      ))}
    </span>
  );
}

export function RepairsPage() {
  const [pagesShown, setPagesShown] = useState(1);
  const { value, error, reload } = useLoaded(
    async (signal) => {
      const repairs: RepairData[] = [];
      let cursor = "";
      for (let page = 0; page < pagesShown; page++) {
        const found = await listRepairs(cursor, signal);
        repairs.push(...found.repairs);
        cursor = found.next_cursor;
        if (cursor === "") break;
      }
      return { repairs, hasMore: cursor !== "" };
    },
    [pagesShown],
  );
  useNet(reload, value?.repairs.every(isEnded) ? restingMs : workingMs);
  return (
    <div class="page">
      <PageHead title="Repairs" about="What was done with many runs at once" />
      {error !== undefined && <Failure error={error} onRetry={reload} />}
      {value?.repairs.length === 0 ? (
        <Empty title="No repairs">
          <p>
            {"Filter "}
            <a href={hrefOf(["runs"])}>runs</a>
            {" and resume or cancel all that match."}
          </p>
        </Empty>
      ) : (
        <RepairTable of={value?.repairs ?? []} />
      )}
      {value?.hasMore && <Button onClick={() => setPagesShown(pagesShown + 1)}>Show more</Button>}
    </div>
  );
}

const RepairTable = ({ of }: { of: readonly RepairData[] }) => (
  <div class="table-scroll">
    <table class="table">
      <thead>
        <tr>
          <th scope="col">Repair</th>
          <th scope="col">Status</th>
          <th scope="col">Progress</th>
          <th scope="col" class="number">
            Runs
          </th>
          <th scope="col">Reason</th>
          <th scope="col" class="number">
            Started
          </th>
        </tr>
      </thead>
      <tbody>
        {of.map((repair) => (
          <tr key={repair.id}>
            <th scope="row">
              <a href={hrefOf(["repairs", repair.id])}>{actionWords[repair.action] ?? repair.action}</a>
              <code class="under">{repair.id}</code>
            </th>
            <td>
              <Status of={repair.status} />
            </td>
            <td>
              <Progress of={repair} />
            </td>
            <td class="number">{count(totalOf(repair))}</td>
            <td>
              <Text of={repair.reason} />
            </td>
            <td class="number">
              <When at={instantOf(repair.created_at)} />
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  </div>
);
