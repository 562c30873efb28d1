export const changes = () => ({ title: () => 'changes', view: () => [] });
