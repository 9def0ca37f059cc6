import { rest } from "../lib/api.ts";
import { count, instantOf } from "../lib/format.ts";
import { useLive, useLoaded, useNet } from "../lib/hooks.ts";
import { hrefOf } from "../lib/router.ts";
import { Empty, Failure, PageHead, Text, When } from "../ui/basics.tsx";

interface WorkerData {
  id: string;
  hostname: string;
  function_ids: string[];
  labels: Record<string, string>;
  version: { sdk: string; runtime: string };
  transport: string;
  active_jobs: number;
  max_concurrent: number;
  registered_at: string;
  last_heartbeat: string;
  clock_off_ms?: number;
}

const readMs = 10_000;
/** A worker's clock that is further off than this reports times that mislead. */
const clockOffMsMax = 1_000;
const functionsShown = 8;

export function WorkersPage() {
  const { value, error, reload } = useLoaded(
    (signal) => rest<{ workers: WorkerData[]; count: number }>("/api/v1/workers", { signal }),
    [],
  );
  useLive("system.worker.>", { onFrame: reload, onBack: reload });
  useNet(reload, readMs);
  const workers = value?.workers ?? [];
  const busy = workers.reduce((sum, { active_jobs }) => sum + active_jobs, 0);
  return (
    <div class="page">
      <PageHead
        title="Workers"
        about={value ? `${count(workers.length)} with a recent heartbeat, ${count(busy)} jobs` : "Reading…"}
      />
      {error !== undefined && <Failure error={error} onRetry={reload} />}
      {value && workers.length === 0 ? (
        <Empty title="No worker is connected">
          <p>Runs wait until a worker of their function comes.</p>
        </Empty>
      ) : (
        <div class="table-scroll">
          <table class="table">
            <thead>
              <tr>
                <th scope="col">Worker</th>
                <th scope="col">Functions</th>
                <th scope="col" class="number">
                  Jobs
                </th>
                <th scope="col">SDK</th>
                <th scope="col">Transport</th>
                <th scope="col" class="number">
                  Heartbeat
                </th>
                <th scope="col" class="number">
                  Since
                </th>
              </tr>
            </thead>
            <tbody>
              {workers.map((worker) => (
                <WorkerRow key={worker.id} worker={worker} />
              ))}
            </tbody>
          </table>
        </div>
      )}
    </div>
  );
}

function WorkerRow({ worker }: { worker: WorkerData }) {
  const { id, hostname, function_ids, version, clock_off_ms = 0 } = worker;
  return (
    <tr>
      <th scope="row">
        <Text of={id} />
        {hostname && (
          <span class="under">
            <Text of={hostname} />
          </span>
        )}
        {Math.abs(clock_off_ms) > clockOffMsMax && (
          <span class="under warn">{`clock off by ${Math.round(clock_off_ms / 1_000)} s`}</span>
        )}
      </th>
      <td>
        <span class="triggers">
          {function_ids.slice(0, functionsShown).map((functionId) => (
            <a key={functionId} href={hrefOf(["functions", functionId])}>
              <Text of={functionId} />
            </a>
          ))}
          {function_ids.length > functionsShown && (
            <span class="faint">{`${function_ids.length - functionsShown} more`}</span>
          )}
        </span>
      </td>
      <td class="number">{`${worker.active_jobs} of ${worker.max_concurrent}`}</td>
      <td>
        <Text of={[version.sdk, version.runtime].filter(Boolean).join(", ")} />
      </td>
      <td>
        <Text of={worker.transport} />
      </td>
      <td class="number">
        <When at={instantOf(worker.last_heartbeat)} />
      </td>
      <td class="number">
        <When at={instantOf(worker.registered_at)} />
      </td>
    </tr>
  );
}
