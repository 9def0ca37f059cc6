import { useState } from "preact/hooks";
import { changeEndpoint, type EndpointView, listEndpoints } from "../../lib/endpoints.ts";
import { count } from "../../lib/format.ts";
import { useLive, useNet, usePages } from "../../lib/hooks.ts";
import { go, hrefOf } from "../../lib/router.ts";
import { may } from "../../lib/session.ts";
import { toast } from "../../lib/toasts.ts";
import { Button, Empty, PageHead, Text, When } from "../../ui/basics.tsx";
import { Field, FormDialog } from "../../ui/dialog.tsx";
import { Status } from "../../ui/status.tsx";
import { Bad, ReadTable } from "../../ui/table.tsx";
import { MadeKey } from "../access/made-key.tsx";

export const readMs = 5_000;

export function EndpointsPage() {
  const [isMaking, setMaking] = useState(false);
  const [made, setMade] = useState<{ id: string; secret: string }>();
  const read = usePages(listEndpoints, []);
  useLive("system.webhook_endpoint.>", { onFrame: read.reload, onBack: read.reload });
  useNet(read.reload, readMs);
  return (
    <div class="page">
      <PageHead
        title="Webhooks out"
        about="Events sent to others, in order and signed"
        actions={
          may("webhooks:manage") && (
            <Button kind="primary" icon="outgoing" onClick={() => setMaking(true)}>
              Add an endpoint…
            </Button>
          )
        }
      />
      <ReadTable
        read={read}
        keyOf={({ id }) => id}
        empty={<Empty title="No endpoints" says="An endpoint is a URL that takes events." />}
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
      {isMaking && <EndpointDialog onMade={setMade} onClose={() => setMaking(false)} />}
      {made && (
        <MadeKey
          title="The secret that signs"
          text={made.secret}
          onClose={() => go(hrefOf(["webhooks-out", made.id]))}
        />
      )}
    </div>
  );
}

/** An active one whose next event fails is shown as such. */
export const standingOf = ({ status, attempts }: EndpointView): string =>
  status === "active" && attempts > 0 ? "waiting" : status;

/** Makes an endpoint, or changes one. */
export function EndpointDialog(props: {
  of?: EndpointView;
  onMade?: (made: { id: string; secret: string }) => void;
  onClose: () => void;
}) {
  const { of, onMade, onClose } = props;
  const [name, setName] = useState(of?.name ?? "");
  const [url, setUrl] = useState(of?.url ?? "https://");
  const [pattern, setPattern] = useState(of?.pattern ?? "events:>");
  const [filter, setFilter] = useState(of?.filter ?? "");
  const submit = async () => {
    const asked = { name, url, pattern, filter };
    if (of) {
      await changeEndpoint("UpdateWebhookEndpoint", { id: of.id, ...asked });
      toast("done", "Endpoint changed");
      return;
    }
    const { endpoint, secret } = await changeEndpoint("CreateWebhookEndpoint", asked);
    onMade?.({ id: endpoint.id, secret });
  };
  return (
    <FormDialog
      title={of ? "Change the endpoint" : "Add an endpoint"}
      submit={of ? "Change" : "Add"}
      onSubmit={submit}
      onClose={onClose}
    >
      <Field label="Name" value={name} onInput={setName} hint="For people" />
      <Field label="URL" isRequired value={url} onInput={setUrl} />
      <Field
        label="Pattern"
        isRequired
        isCode
        value={pattern}
        onInput={setPattern}
        hint="What it gets, such as events:order.* or entity:order.>"
      />
      <Field label="Filter in CEL" isCode value={filter} onInput={setFilter} hint="Empty takes all" />
    </FormDialog>
  );
}
