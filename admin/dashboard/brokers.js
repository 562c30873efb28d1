export const brokers = () => ({ title: () => 'brokers', view: () => [] });
