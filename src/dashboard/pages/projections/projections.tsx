import { count } from "../../lib/format.ts";
import { useChanged, useLive, useLoaded, useNet } from "../../lib/hooks.ts";
import { listProjections } from "../../lib/projections.ts";
import { hrefOf } from "../../lib/router.ts";
import { Empty, Failure, PageHead, Text, When } from "../../ui/basics.tsx";
import { Scrolling } from "../../ui/scrolling.tsx";
import { Status } from "../../ui/status.tsx";

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
        <Scrolling label="Projections">
          <table class="table">
            <thead>
              <tr>
                <th scope="col">Projection</th>
                <th scope="col">Status</th>
                <th scope="col">Mode</th>
                <th scope="col">Folds</th>
                <th scope="col" class="number">
                  Position
                </th>
                <th scope="col" class="number">
                  Moved
                </th>
              </tr>
            </thead>
            <tbody>
              {value?.map((one) => (
                <tr key={one.name}>
                  <th scope="row">
                    <Text of={one.name} href={hrefOf(["projections", one.name])} />
                    {one.error && <Text of={one.error.slice(0, 200)} in="span" class="under warn" />}
                  </th>
                  <td>
                    <Status of={one.status} />
                  </td>
                  <td>{one.mode}</td>
                  <td>
                    <span class="triggers">
                      {one.events.slice(0, eventsShown).map((event) => (
                        <Text key={event} of={event} />
                      ))}
                      {one.events.length > eventsShown && (
                        <span class="faint">{`${one.events.length - eventsShown} more`}</span>
                      )}
                    </span>
                  </td>
                  <td class="number">{count(one.lastSequence)}</td>
                  <td class="number">
                    <When at={one.updatedAt} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scrolling>
      )}
    </div>
  );
}
