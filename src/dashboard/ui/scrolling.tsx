import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

/** Holds what may be wider than its place, such as a table: then keys scroll it, too. `label` names it to those who hear the page. */
export function Scrolling(props: { label: string; class?: string; children: ComponentChildren }) {
  const { label, class: kind = "", children } = props;
  const frame = useRef<HTMLElement>(null);
  const [isWider, setWider] = useState(false);
  useEffect(() => {
    const element = frame.current!;
    const measured = new ResizeObserver(() => setWider(element.scrollWidth > element.clientWidth));
    for (const one of [element, ...element.children]) measured.observe(one);
    return () => measured.disconnect();
  }, []);
  return (
    <section
      ref={frame}
      class={`table-scroll ${kind}`}
      {...(isWider && { "aria-label": label, tabIndex: 0 })}
    >
      {children}
    </section>
  );
}
