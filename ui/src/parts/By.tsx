/** Who did something: `ann@10.0.0.7 via dashboard` is ann, with the whole on hover. */
import { visible } from "../names";

const WHO = /^(.+)@([^@\s]+) via (.+)$/;

export function By({ text }: { text: string }) {
  const found = WHO.exec(text);
  if (!found) return <bdi>{visible(text)}</bdi>;
  const [, name = "", place = "", via = ""] = found;
  const isHere = via === "dashboard";
  return (
    <bdi data-tip={visible(text)}>
      {visible(isHere ? name : `${name}@${place}`)}
      {!isHere && <small class="q3"> {visible(via)}</small>}
    </bdi>
  );
}
