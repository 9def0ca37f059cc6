import { useState } from "preact/hooks";
import { count } from "../../lib/format.ts";
import { useFollowed, usePages } from "../../lib/hooks.ts";
import { go, hrefOf } from "../../lib/router.ts";
import { may } from "../../lib/session.ts";
import { changeEndpoint, type EndpointView, listEndpoints } from "../../lib/webhooks.ts";
import { Text, When } from "../../ui/basics.tsx";
import { type DialogEnds, Field, FormDialog, Opener, useFields } from "../../ui/dialog.tsx";
import { ResourceList } from "../../ui/resource.tsx";
import { Status } from "../../ui/status.tsx";
import { Bad } from "../../ui/table.tsx";
import { MadeKey } from "../access/made-key.tsx";

export const readMs = 5_000;

export function EndpointsPage() {
  const [made, setMade] = useState<{ id: string; secret: string }>();
  const read = usePages(listEndpoints, []);
  useFollowed(read.reload, { frames: "system.webhook_endpoint.>", everyMs: readMs });
  return (
    <ResourceList
      title="Webhooks out"
      about="Events sent to others, in order and signed"
      actions={
        may("webhooks:manage") && (
          <>
            <Opener kind="primary" icon="outgoing" text="Add an endpoint…">
              {(onClose) => <EndpointDialog onMade={setMade} onClose={onClose} />}
            </Opener>
            {made && (
              <MadeKey
                title="The secret that signs"
                text={made.secret}
                onClose={() => go(hrefOf(["webhooks-out", made.id]))}
              />
            )}
          </>
        )
      }
      read={read}
      keyOf={({ id }) => id}
      empty="No endpoints"
      docs="webhooks#out-to-your-partners"
      says="An endpoint is a URL that takes events."
      columns={[
        {
          name: "Endpoint",
          of: ({ id, name, url }) => (
            <>
              <Text of={name || url} href={hrefOf(["webhooks-out", id])} />
              {name && <Text of={url} in="span" class="under" />}
            </>
          ),
        },
        { name: "Status", of: (endpoint) => <Status of={standingOf(endpoint)} /> },
        { name: "Gets", of: ({ pattern }) => <Text of={pattern} in="code" /> },
        { name: "Behind", isNumber: true, of: ({ behind }) => count(behind) },
        { name: "Dead letters", isNumber: true, of: ({ deadLetters }) => <Bad of={deadLetters} /> },
        { name: "Delivered", isNumber: true, of: ({ lastDeliveredAt }) => <When at={lastDeliveredAt} /> },
      ]}
    />
  );
}

/** An active one whose next event fails is shown as such. */
export const standingOf = ({ status, attempts }: EndpointView): string =>
  status === "active" && attempts > 0 ? "waiting" : status;

/** Makes an endpoint, or changes one. */
export function EndpointDialog(
  props: DialogEnds & { of?: EndpointView; onMade?: (made: { id: string; secret: string }) => void },
) {
  const { of, onMade, onClose } = props;
  const [typed, field] = useFields({
    ...{ name: of?.name ?? "", url: of?.url ?? "https://" },
    ...{ pattern: of?.pattern ?? "events:>", filter: of?.filter ?? "" },
  });
  const submit = async () => {
    if (of) {
      await changeEndpoint("UpdateWebhookEndpoint", { id: of.id, ...typed });
      return "Endpoint changed";
    }
    const { endpoint, secret } = await changeEndpoint("CreateWebhookEndpoint", typed);
    onMade?.({ id: endpoint.id, secret });
    return undefined;
  };
  return (
    <FormDialog
      title={of ? "Change the endpoint" : "Add an endpoint"}
      submit={of ? "Change" : "Add"}
      onSubmit={submit}
      onClose={onClose}
    >
      <Field label="Name" {...field("name")} hint="For people" />
      <Field label="URL" isRequired {...field("url")} />
      <Field
        label="Pattern"
        isRequired
        isCode
        {...field("pattern")}
        hint="What it gets, such as events:order.* or entity:order.>"
      />
      <Field label="Filter in CEL" isCode {...field("filter")} hint="Empty takes all" />
    </FormDialog>
  );
}
