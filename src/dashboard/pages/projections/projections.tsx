import { count } from "../../lib/format.ts";
import { useFollowed, usePages } from "../../lib/hooks.ts";
import { listProjections } from "../../lib/projections.ts";
import { hrefOf } from "../../lib/router.ts";
import { aboutRead, Page, Text, When } from "../../ui/basics.tsx";
import { Status } from "../../ui/status.tsx";
import { ReadTable } from "../../ui/table.tsx";

const readMs = 10_000;
const eventsShown = 6;

export function ProjectionsPage() {
  const read = usePages(listProjections, []);
  const about = aboutRead(
    read,
    (all) => `${count(all.length)}${read.hasMore ? " and more" : ""} in this environment`,
  );
  useFollowed(read.reload, { list: "projections", frames: "system.projection_health.*", everyMs: readMs });
  return (
    <Page title="Projections" about={about}>
      <ReadTable
        read={read}
        label="Projections"
        empty="No projections"
        says="A runner registers its projections when it starts."
        docs="streams-projections"
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
    </Page>
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
