import { count } from "../../lib/format.ts";
import { useChanged, useLive, useLoaded, useNet } from "../../lib/hooks.ts";
import { listProjections } from "../../lib/projections.ts";
import { hrefOf } from "../../lib/router.ts";
import { Empty, Failure, PageHead, Text, When } from "../../ui/basics.tsx";
import { Status } from "../../ui/status.tsx";
import { Table } from "../../ui/table.tsx";

const readMs = 10_000;
const eventsShown = 6;

export function ProjectionsPage() {
  const { value, error, reload } = useLoaded((signal) => listProjections(signal), []);
  useChanged("projections", reload);
  useLive("system.projection_health.*", { onFrame: reload, onBack: reload });
  useNet(reload, readMs);
  return (
    <div class="page">
      <PageHead
        title="Projections"
        about={value ? `${count(value.length)} in this environment` : "Reading…"}
      />
      {error !== undefined && <Failure error={error} onRetry={reload} />}
      {value?.length === 0 ? (
        <Empty title="No projections" says="A runner registers its projections when it starts." />
      ) : (
        <Table
          label="Projections"
          rows={value ?? []}
          keyOf={({ name }) => name}
          columns={[
            {
              name: "Projection",
              of: ({ name, error: failed }) => (
                <>
                  <Text of={name} href={hrefOf(["projections", name])} />
                  {failed && <Text of={failed.slice(0, 200)} in="span" class="under warn" />}
                </>
              ),
            },
            { name: "Status", of: ({ status }) => <Status of={status} /> },
            { name: "Mode", of: ({ mode }) => mode },
            { name: "Folds", of: ({ events }) => <Folded of={events} /> },
            { name: "Position", isNumber: true, of: ({ lastSequence }) => count(lastSequence) },
            { name: "Moved", isNumber: true, of: ({ updatedAt }) => <When at={updatedAt} /> },
          ]}
        />
      )}
    </div>
  );
}

const Folded = ({ of }: { of: readonly string[] }) => (
  <span class="triggers">
    {of.slice(0, eventsShown).map((event) => (
      <Text key={event} of={event} />
    ))}
    {of.length > eventsShown && <span class="faint">{`${of.length - eventsShown} more`}</span>}
  </span>
);
