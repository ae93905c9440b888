export function Job({ name }: { name: string }) {
  return <p>{name}</p>;
}
