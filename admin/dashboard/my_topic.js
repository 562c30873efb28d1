export const myTopic = () => ({ title: () => 'my_topic', view: () => [] });
